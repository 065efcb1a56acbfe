"""The drawing of a workflow: a job or a batch with everything that it waits for and that waits for it.

pages    the section on the page of a job or batch, and the page with nothing else
reading  the jobs and batches, from the database
"""

"""The drawing of a workflow: a job or a batch with everything that it waits for and that waits for it.

pages.py       the section on the page of a job or batch, and the page with nothing else
reading.py     the jobs and batches, from the database; nodes.py is what it returns
fold.py        a large workflow with few nodes
layout.py      where nodes and arrows are drawn; columns.py, crossings.py and heights.py are its parts
shapes.py      the same in pixels, for the template; wording.py the texts
"""

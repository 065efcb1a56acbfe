"""The page of a job, part by part. ``page.py`` puts them together.

timeline.py     its life in parts; drawing.py the same as a drawing
why.py          why it does not run
errors.py, logs.py, steps.py, payload.py, unique.py, limits.py   what their names say
links.py        its batch, what it waits for, and what waits for it
own_links.py    links that the project adds; panels.py templates that it adds
task_runs.py    the chart of its task
clone.py        "Enqueue again"; clone_form.py its form, redacted_input.py hidden values
"""

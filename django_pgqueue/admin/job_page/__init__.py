"""The page of a job, part by part. ``page`` puts them together, with the panels of the project.

timeline  its life in parts, and a drawing of them
why       why it does not run: the reason, its limits, its unique key
errors    its errors and its logs
payload   the row of its model
links     its batch, what it waits for, what waits for it, and the links that the project adds
clone     "Enqueue again"
"""

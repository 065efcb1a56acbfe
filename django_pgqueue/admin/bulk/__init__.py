"""Actions on jobs: those of the list, the confirmation, and the way through many jobs in the background.

actions.py    the actions, each with its permission and its messages
confirm.py    the confirmation page; effects.py what would happen in each state, edit_form.py the new
              values of an edit
selection.py  which jobs are selected, and how they are found again after the confirmation
start.py      where an action runs: in the request, or in the background
task.py       the task that runs it in the background; order.py what it is told, walk.py its way through
              the jobs
outcome.py    what the user is told at the end
"""

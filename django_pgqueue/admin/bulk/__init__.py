"""Actions on jobs: those of the list, the confirmation, and the way through many jobs in the background.

actions    the actions, each with its permission and its messages
confirm    the confirmation page; effects is what would happen in each state, edit_form the new values of an
           edit
selection  which jobs are selected, how many they are, and how they are found again after the confirmation
start      where an action runs: in the request, or in the background
task       the task that runs it in the background, in chunks, and what the user reads at the end
order      what this task is given
"""

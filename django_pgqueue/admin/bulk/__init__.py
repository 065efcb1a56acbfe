"""Actions on jobs: the actions of the list, the confirmation, and the way through many jobs in the
background.

actions    the actions, each with its permission, its messages, and its effects on jobs in each state
edit_form  the new values of an edit
selection  which jobs are selected, how many they are, and how they are found again after the confirmation
confirm    the confirmation page, and where an action runs: in the request, or in the background
task       the task that runs it in the background, and its order
"""

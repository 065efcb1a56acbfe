"""The page of a job.

page       its sections, in their order, and the links that the project declares for its tasks
formatter  how values are shown: redacted, and with links that the user may follow
timeline   its life in parts, and a drawing of them
why        why it does not run: the reason, its limits, its unique key
clone      "Enqueue again"
"""

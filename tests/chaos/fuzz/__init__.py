"""Random calls: the functions of the schema with any parameters, and the life of jobs against a model.

functions   finds the functions of the schema, and makes parameters for them
calls       calls them, and says what is wrong with their answers
model       says what must become of a job
acts        does something with jobs, and tells the model
checks      compares the jobs with the model
machine     chooses at random what is done
long_form   does both for some minutes: ``python3 dev.py chaos --fuzz --minutes 30 --seed 7``
"""

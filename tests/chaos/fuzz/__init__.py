"""Random calls: the functions of the schema with any parameters, and the life of jobs against a model.

functions   finds the functions of the schema, calls them, and says what is wrong with their answers
model       says what must become of a job
acts        does something with jobs, tells the model, and compares the jobs with it
machine     chooses at random what is done: ``python3 dev.py chaos --fuzz --minutes 30 --seed 7``
"""

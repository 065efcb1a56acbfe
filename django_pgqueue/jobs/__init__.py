"""The life of a job, one module for each transition: enqueue, claim, finish, and control from outside."""

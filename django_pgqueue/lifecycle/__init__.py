"""A job's life, one module a transition: enqueue, claim, finish, and control from outside."""

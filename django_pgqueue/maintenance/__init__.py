"""Short rounds that any supervisor may do at any time.

rounds    which rounds there are, and when
recovery  requeue the jobs of dead workers
limits    write the limits that the code declares
alerts    tell the project what went wrong
"""

"""Short rounds that any supervisor may do at any time.

rounds    which rounds there are, and when
recovery  requeue the jobs of dead workers
limits    let waiting jobs follow, if nobody else did
alerts    tell the project what went wrong
"""

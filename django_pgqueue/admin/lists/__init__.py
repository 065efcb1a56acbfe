"""Lists that stay fast with a long history.

changelist.py  pages by keyset, without counting
orders.py      orders that an index supports
names.py       the names of queues and tasks, for filters
"""

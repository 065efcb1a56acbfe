"""Jobs: the list, its filters and search, and how a job is shown there and on its page.

admin.py     the admin class
search.py    the search field; visible.py a search that finds only what is shown
filters.py   the filters; orders.py the order for each status
fields.py    the fields of a job; texts.py, times.py, progress.py and workers.py show some of them
cut_json.py  arguments that are read in part
buttons.py   the actions of the list and the buttons of the page
"""

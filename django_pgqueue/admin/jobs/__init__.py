"""Jobs: the list, its filters and search, and how a job is shown there and on its page.

admin     the admin class, with the actions of the list and the buttons of the page
fields    the fields of a job, and its times
texts     long texts, cut JSON, and the names of workers
progress  how far it is
filters   the filters, and the filter by status
search    the search field, and the order for each status
"""

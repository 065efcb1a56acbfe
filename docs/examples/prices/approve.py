from shop.prices.approved import approve, import_prices

from django_pgqueue import enqueue

job = enqueue(import_prices, "south")
print(approve(job.pk, "ann"))
print(approve(job.pk, "bob"))

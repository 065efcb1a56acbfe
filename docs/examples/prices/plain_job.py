from shop.prices.plain import import_prices

from django_pgqueue import enqueue

enqueue(import_prices, "north")

from shop.prices.batched import start

batch = start(["north", "south", "west"])
print(batch.counts())

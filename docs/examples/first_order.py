from shop.orders import place_order

job = place_order("ann@example.com", total=42)
print(job.pk, job.status)

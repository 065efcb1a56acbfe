from shop.tasks import send_receipt

print(type(send_receipt.get_backend()).__name__)

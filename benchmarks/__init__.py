"""Programs that measure the queue. Anybody can run them again. Each program prints what it measured."""

INSERT INTO invoices_invoice (order_id, language)
SELECT id, 'fr' FROM invoices_order WHERE total > 100
RETURNING job_id;

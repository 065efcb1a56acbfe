-- At the end of a transaction that has enqueued something after other jobs or batches, once.
CREATE CONSTRAINT TRIGGER pgqueue_attach AFTER INSERT ON pgqueue_edge
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (pgqueue_attach_once_v1())
    EXECUTE FUNCTION pgqueue_attach_v1();

-- Only jobs of roles that may only enqueue carry a role (pgqueue_enqueue_only_v1), and only new ones have no attempts. The
-- condition is here and not in the function, so that any other job does not call a function.
CREATE TRIGGER pgqueue_check_size BEFORE INSERT ON pgqueue_job_live FOR EACH ROW
    WHEN (NEW.attempts = 0 AND NEW.context ? 'role')
    EXECUTE FUNCTION pgqueue_check_size_v1();

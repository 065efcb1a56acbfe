-- Pin a setting for the functions whose texts have a backslash, or call pgqueue_problem_v1, which is inlined into them and
-- so has no settings of its own. With standard_conforming_strings off, the backslash would begin an escape. Functions that
-- come later use no backslash (tests/sql/test_strings.py).
ALTER FUNCTION pgqueue_enqueue_v1 SET standard_conforming_strings = on;
ALTER FUNCTION pgqueue_enqueue_many_v1 SET standard_conforming_strings = on;
ALTER FUNCTION pgqueue_edit_v1 SET standard_conforming_strings = on;
ALTER FUNCTION pgqueue_pause_v1 SET standard_conforming_strings = on;
ALTER FUNCTION pgqueue_register_worker_v1 SET standard_conforming_strings = on;
ALTER FUNCTION pgqueue_payload_paths_v1 SET standard_conforming_strings = on;

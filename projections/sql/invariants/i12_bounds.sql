-- I12, bounds: a rollout uses up at most the configured number of attempts (attempts that halted the run are not its own).
select r.run_id, r.rollout_id, r.attempts, r.retried, r.failures, q.max_attempts
from rollouts r join run_requested q on q.run_id = r.run_id
where r.attempts - (r.retried - r.failures) > q.max_attempts;

-- I7, one ending: one end for every attempt and every run, and nothing is asked for after a rollout's last end.
select 'attempt' as what, run_id, rollout_id, attempt, count(*) as times
from rollout_finished group by run_id, rollout_id, attempt having count(*) > 1
union all
select 'run', run_id, '_', null, count(*) from run_finished group by run_id having count(*) > 1
union all
select 'asked after the end', q.run_id, q.rollout_id, q.attempt, count(*)
from requests q join rollout_finished f on f.run_id = q.run_id and f.rollout_id = q.rollout_id and f.retry_at is null and f.seq < q.seq
where q.actor = 'collector' group by q.run_id, q.rollout_id, q.attempt;

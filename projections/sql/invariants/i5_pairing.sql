-- I5, pairing: a request has exactly one answer once its rollout (or its run, for what is asked about the run) is over, and never two; an
-- answer answers a request. Asking a run to stop or to go on may stay without one. A destroyed sandbox and a failed session may name the
-- end of the session instead of a request, a resumed run its pause, and a parked request a sequence that could not be read. Of a request that
-- was tried again, having been parked does not count.
with over as (
    select run_id, rollout_id from rollout_finished where retry_at is null
    union
    select run_id, '_' from run_finished
), asked as (
    select q.*, count(a.event_id) filter (d.run_id is null or a.type != 'request_parked.v1') as answered
    from requests q left join answers a on a.run_id = q.run_id and a.request_id = q.event_id
    left join redriven d on d.run_id = q.run_id and d.request_id = q.event_id
    where q.type not in ('run_cancel_requested.v1', 'run_resume_requested.v1')
    group by all
)
select 'two answers' as what, run_id, rollout_id, type, event_id, answered from asked where answered > 1
union all
select 'no answer', q.run_id, q.rollout_id, q.type, q.event_id, q.answered
from asked q semi join over o on o.run_id = q.run_id and o.rollout_id = q.rollout_id where q.answered = 0
union all
select 'no request', a.run_id, a.rollout_id, a.type, a.request_id, null
from answers a anti join requests q on q.run_id = a.run_id and q.event_id = a.request_id
where a.type not in ('sandbox_destroyed.v1', 'session_failed.v1', 'run_resumed.v1', 'request_parked.v1');

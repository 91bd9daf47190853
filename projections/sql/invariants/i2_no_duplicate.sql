-- I2, no duplicate: an event id occurs once, and (aggregate, ordinal) once, claims and snapshots not counted.
select 'event_id' as what, event_id as id, count(*) as times, min(seq) as first_seq
from events group by event_id having count(*) > 1
union all
select 'ordinal', concat_ws('.', run_id, rollout_id, actor, key, ordinal::varchar), count(*), min(seq)
from events where kind not in ('claim', 'snapshot') group by run_id, rollout_id, actor, key, ordinal having count(*) > 1;

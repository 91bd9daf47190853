-- I8, honest reward: one verdict for an attempt and a version of the verifier, about the evidence that was handed in; a reward stands only
-- where a verdict says the same, and never beside a failure.
with asked as (
    select run_id, event_id, data->'$.evidence' as evidence from events where type = 'verdict_requested.v1'
)
select 'two verdicts' as what, run_id, rollout_id, attempt, null as reward, count(*) as times
from verdicts where state = 'issued' group by run_id, rollout_id, attempt, verifier_version having count(*) > 1
union all
select 'other evidence', v.run_id, v.rollout_id, v.attempt, v.reward, null
from verdicts v join asked q on q.run_id = v.run_id and q.event_id = v.request_id
-- Control characters are escaped in two ways; where there are any, the text cannot be compared here.
where v.state = 'issued' and not contains(q.evidence::varchar, '\u') and v.evidence_digest != left(sha256(q.evidence::varchar), 32)
union all
select 'no verdict', f.run_id, f.rollout_id, f.attempt, f.reward, null
from rollout_finished f anti join verdicts v
on v.run_id = f.run_id and v.rollout_id = f.rollout_id and v.attempt = f.attempt and v.state = 'issued' and v.reward = f.reward
where f.reward is not null
union all
select 'reward beside a failure', run_id, rollout_id, attempt, reward, null
from rollout_finished where reward is not null and failure_kind is not null
union all
select 'scored without a reward', f.run_id, f.rollout_id, f.attempt, f.reward, null
from rollout_finished f join counted_as c on c.state = f.state where (c.counted = 'scored') != (f.reward is not null);

-- I14, liveness, and the numbers: in a run that is over nothing is open; what it says it counted is what its rollouts say, and adds up.
select 'open' as what, r.run_id, r.rollout_id, r.state, null as said, null as counted
from rollouts r join run_finished f on f.run_id = r.run_id
left join rollout_endings e on e.run_id = r.run_id and e.rollout_id = r.rollout_id
where f.state = 'completed' and (e.run_id is null or e.retry_at is not null)
union all
select 'count', f.run_id, '_', n.name, n.said, n.counted
from run_finished f join runs r on r.run_id = f.run_id, lateral (
    select unnest([
        {name: 'scored', said: f.scored, counted: r.scored}, {name: 'failed', said: f.failed, counted: r.failed},
        {name: 'masked', said: f.masked, counted: r.masked}, {name: 'missing', said: f.missing, counted: r.missing},
        {name: 'planned', said: f.planned, counted: f.scored + f.failed + f.masked + f.missing}
    ], recursive := true)
) n
where n.said != n.counted;

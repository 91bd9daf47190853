select e.shard, min(e.seq), max(e.seq)
from events e left join run_finished f on f.run_id = e.run_id
where e.run_id = $1 and (f.run_id is null or e.shard != f.shard or e.seq <= f.seq) group by e.shard order by e.shard;

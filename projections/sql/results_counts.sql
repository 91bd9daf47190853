-- By type, up to the run's end: what is said after it (a late request that is refused) changes no result.
select e.type, count(*)
from events e left join run_finished f on f.run_id = e.run_id
where e.run_id = $1 and (f.run_id is null or e.shard != f.shard or e.seq <= f.seq) group by e.type order by e.type;

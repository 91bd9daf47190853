select r.*, q.config::varchar as config, q.versions::varchar as versions
from runs r join run_requested q on q.run_id = r.run_id where r.run_id = $1;

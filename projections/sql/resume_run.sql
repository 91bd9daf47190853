select
    case
        when finished is not null then 'finished' when state = 'cancelling' then 'cancelled' when state = 'paused' then 'paused' else 'open'
    end,
    planned
from runs where run_id = $1;

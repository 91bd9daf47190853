-- What a run does to its agent's own program beside giving it tasks: words for its system prompt, tools that the model is not offered,
-- more for its command line. A row each, `place` in the order of the configuration; an agent that is run as it is has none.
create or replace view treatments as
with agents as (
    select run_id, config->>'$.agent.type' as agent, config->'$.agent' as given from run_requested
), listed as (
    select
        run_id, agent, unnest(['withheld_tool', 'extra_arg']) as treatment,
        unnest([given->>'$.withheld_tools[*]', given->>'$.extra_args[*]']) as values
    from agents
)
select
    run_id, agent, 'system_prompt_' || coalesce(given->>'$.system_prompt_mode', 'append') as treatment, 0 as place,
    given->>'$.system_prompt' as value
from agents where given->>'$.system_prompt' is not null
union all
select run_id, agent, treatment, unnest(range(len(values))) as place, unnest(values) as value from listed;

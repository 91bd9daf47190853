-- What a run does to its agent's own program beside giving it tasks: words for its system prompt, tools that the model is not offered,
-- more for its command line or its configuration, another version. A row each, `place` in the order of the configuration; an agent that is run as it is has none.
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
select run_id, agent, 'no_tools', 0, 'enable_tools=false' from agents
where (given->>'$.enable_tools') = 'false'
    and agent not in ('simple_agent', 'simple_agent_with_compaction', 'browsecomp_agent')  -- whose tools are ours
union all
select run_id, agent, 'version', 0, given->>'$.version' as value from agents where (given->>'$.version') is not null
union all
select run_id, agent, name, 0, value
from (
    select
        run_id, agent, unnest(['extra_config', 'models_config', 'opencode_config', 'kilo_config']) as name,
        unnest([
            given->>'$.extra_config', given->>'$.models_config', given->>'$.opencode_config', given->>'$.kilo_config'
        ]) as value
    from agents
) where value is not null and value != '{}'
union all
select run_id, agent, treatment, unnest(range(len(values))) as place, unnest(values) as value from listed;

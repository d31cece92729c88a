"""Every sentence that the harness itself says to a model, and the headers of results; knows no rules, only their words."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Wording:
    """Templates for `str.format`; a profile may replace any of them. `used` is a token count, `shown` the number that is
    displayed beside it, `limit` the hard cutoff. `list_lead` stands before the first passage of a list."""

    list_lead: str = ""
    chunk_header: str = "# DOCUMENT ID: {id} ({tokens} tokens)"
    document_header: str = "# Document ({tokens} tokens)"
    usage_line: str = "[Token usage: {used}/{shown}]"
    over_budget: str = (
        "You have used {used} of {shown} tokens and are over the budget. Do not search, grep or read again until you "
        "have pruned. Choose now: prune the chunks that do not help to answer the question, or, if what you hold is "
        "enough, write the final list of documents."
    )
    rejected: str = (
        "Not run: {used} tokens are in use and the limit is {limit}. Only prune_chunks works now. Prune what does not "
        "help, or write the final list of documents."
    )
    no_results: str = "No results found"
    nothing_fits: str = "There are further results, but none fits in the tokens that are left. Prune chunks first."
    pruned: str = "Pruned"
    emptied: str = "(all of it pruned)"
    repeated: str = "Note: this exact call was made before."
    withdrawn: str = (
        "Not run: this exact call was made {count} times before. Ask something else, or write the final list."
    )
    unknown_tool: str = "There is no tool named {name}. The tools are: {tools}."
    bad_arguments: str = "The arguments of {name} are not usable: {problem}. Expected: {expected}"
    bad_carrier: str = (
        "What {name} carries is not usable. Expected: a JSON list of "
        '{{"tool_name": "<tool>", "parameters": {{…}}}}, one for each call.'
    )
    too_many_calls: str = "Not run: the limit of tool calls for this search is reached. Write the final list now."
    tool_failed: str = "{name} failed and gave no result. Try another way."
    empty_reply: str = (
        "Your reply held neither a tool call nor a final list. Call a tool, or write the final list of documents in "
        "the required form."
    )
    cut_off: str = (
        "Your reply was cut off before it held a complete tool call or a final list. Be shorter: call a tool, or write "
        "the final list of documents in the required form."
    )
    no_ids: str = (
        "Your reply names no document that was shown to you. Use ids exactly as they stand after '# DOCUMENT ID:', in "
        "the required form, best first; or call a tool to go on searching."
    )
    closing: str = (
        "The search ends here. Call no more tools. Write the final list of documents now, best first, in the required "
        "form, from what you have been shown."
    )

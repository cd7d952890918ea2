"""The cheap placers that studies compare with: without training or search, in seconds on any graph."""

CHEAP = (
    "heft", "human_expert", "metis", "metis:default=true", "kahip", "peft", "m_etf", "m_sct", "m_topo",
    "gpipe:micro_batches=1", "pipedream", "single_device", "round_robin",
)  # fmt: skip

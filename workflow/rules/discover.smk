# What this machine is: the DAG expands over the devices that are found here.


checkpoint discover:
    output:
        f"{RESULTS}/node.json",
    log:
        f"{RESULTS}/logs/discover.log",
    conda:
        "../envs/study.yaml"
    params:
        preset=config["preset"],
        seed=config["seed"],
    shell:
        "python -m experiments probe --option preset={params.preset} --option seed={params.seed} "
        "--out {output} 2> {log}"

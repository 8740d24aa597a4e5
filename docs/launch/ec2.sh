#!/bin/sh
# The user data of an instance: a runner as the user adj, and the end of the instance when the runner is idle or fails. The image
# has adj, git and the CLIs of the agents.
printf '%s' '{token}' | runuser -u adj -- env HOME=/home/adj adj runner --join '{url}' --token-file - --pool '{pool}' --slots 4 --idle-exit 10m
shutdown -h now

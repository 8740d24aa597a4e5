#!/bin/sh
# The user data of an instance: starts a runner as the user adj, and shuts the instance down when the runner has exited. The image
# must have adj, git and the CLIs of the agents.
printf '%s' '{token}' | runuser -u adj -- env HOME=/home/adj adj runner --join '{url}' --token-file - --pool '{pool}' --slots 4 --idle-exit 10m
shutdown -h now

# One launched runner. If the job has ended, running it with another token starts it again. Change the image (adj, git and the
# CLIs of the agents) and the resources.
job "{name}" {
  type = "batch"

  group "runner" {
    # The hub launches another runner if this one fails.
    restart {
      attempts = 0
      mode     = "fail"
    }
    reschedule {
      attempts  = 0
      unlimited = false
    }

    task "runner" {
      driver = "docker"
      # On SIGTERM the runner waits for its runs. The client's max_kill_timeout limits this.
      kill_timeout = "1h"

      config {
        image   = "registry.example.org/adj-runner:0.1.0"
        command = "/bin/sh"
        args = [
          "-c",
          "exec adj runner --join \"$0\" --token-file - --pool \"$1\" --slots 2 --idle-exit 10m < /secrets/token",
          "{url}",
          "{pool}",
        ]
      }

      template {
        data        = "{token}"
        destination = "secrets/token"
        perms       = "600"
      }

      resources {
        cpu    = 4000
        memory = 8192
      }
    }
  }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* container_answer.c - statuses and words of kata-agent. */
#include "agent-client/container_request.h"

#include <string.h>

#include "agent-client/agent_client.h"
#include "lib/result.h"

static bool contains(const char *text, const char *part)
{
    return strcasestr(text, part) != NULL;
}

/* Making a cgroup is part of CreateContainer; StartContainer asks it for its memory events. */
static enum container_kind kind_of_failure(enum container_step step, const char *message)
{
    bool makes = step == CONTAINER_CREATE || step == CONTAINER_START;

    return makes && contains(message, "cgroup") ? CONTAINER_NO_CGROUPS : CONTAINER_FAILED;
}

enum container_kind container_kind_of(enum container_step step, const struct ttrpc_status *status)
{
    bool first = step == CONTAINER_CREATE || step == CONTAINER_COPY;

    switch (agent_outcome_from_status(status->code, status->message)) {
    case AGENT_DONE:
        return CONTAINER_DONE;
    case AGENT_DENIED:
        return CONTAINER_DENIED;
    case AGENT_UNSUPPORTED: /* later on NOT_FOUND is a process or a container */
        return first || status->code == STATUS_UNIMPLEMENTED ? CONTAINER_UNSUPPORTED
                                                             : CONTAINER_FAILED;
    case AGENT_UNREACHABLE:
    case AGENT_LAYER:
    case AGENT_NOT_GROWABLE:
    case AGENT_READ_ONLY:
    case AGENT_SHUT_DOWN:
    case AGENT_LIMIT:
    case AGENT_GROWING:
    case AGENT_FAILED:
    case AGENT_UNEXPLAINED:
    case AGENT_OUTCOMES:
    default:
        return kind_of_failure(step, status->message);
    }
}

bool container_is_barred(enum container_kind kind)
{
    return kind == CONTAINER_DENIED || kind == CONTAINER_UNSUPPORTED;
}

bool container_is_absent(const struct ttrpc_status *status)
{
    return status->code == STATUS_NOT_FOUND ||
           (status->code != STATUS_OK && (contains(status->message, "Invalid container id") ||
                                          contains(status->message, "InvalidContainerId")));
}

/* "eof" and "read meet eof". */
bool container_is_end_of_output(const struct ttrpc_status *status)
{
    return status->code == STATUS_INTERNAL && contains(status->message, "eof");
}

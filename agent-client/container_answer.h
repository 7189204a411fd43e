/* SPDX-License-Identifier: Apache-2.0 */
/* container_answer.h - what an agent's status means for a container's run. Private to
 * agent-client/.
 *
 * kata-agent answers almost every failure with INTERNAL, so its text has to be parsed. The texts
 * are the same from Kata 2.5.0 to 4.1.0 unless noted.
 */
#pragma once

#include <stdbool.h>

#include "agent-client/container_run.h"
#include "agent-client/ttrpc_codec.h"

enum container_kind container_kind_of(enum container_step step, const struct ttrpc_status *status);

/* The agent did not begin to do what it was asked for. */
bool container_is_barred(enum container_kind kind);

/* It does not know this id. */
bool container_is_absent(const struct ttrpc_status *status);

/* Of ReadStdout and ReadStderr: Kata up to 3.26 answers an error instead of an empty answer. */
bool container_is_end_of_output(const struct ttrpc_status *status);

/* SPDX-License-Identifier: Apache-2.0 */
/* permit.h - what crustd may do to a volume: the strictest of the configuration and the volume's
 * own policy; and which VMMs it may tell. */
#pragma once

#include "model/hypervisor.h"
#include "model/volume.h"

struct config;
struct store_volume;

enum resize_policy permit_of(const struct config *config, const struct store_volume *volume);

/* Why the configuration forbids to tell VMMs of this kind of a new size, static; NULL: it does not.
 */
const char *permit_find_forbidding(const struct config *config, enum hypervisor_kind kind);

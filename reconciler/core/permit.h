/* SPDX-License-Identifier: Apache-2.0 */
/* permit.h - what crustd may do to a volume: the strictest of the configuration and the volume's
 * own policy. */
#pragma once

#include "model/volume.h"

struct config;
struct store_volume;

enum resize_policy permit_of(const struct config *config, const struct store_volume *volume);

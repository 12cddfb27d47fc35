// SPDX-License-Identifier: GPL-2.0
/*
 * fakerapl: energy counters for machines without any.
 *
 * Registers the powercap control type "intel-rapl" with a zone for each package and one for the memory
 * of each, as the kernel's RAPL driver does. A package uses `milliwatts`, its memory a quarter of that,
 * from the moment of loading; package N uses N + 1 times as much. A counter continues at 0 after
 * `range` microjoules.
 *
 *   packages=N   at loading
 *   milliwatts=N at loading
 *   range=N      at loading
 */
#include <linux/kernel.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/powercap.h>

#define MAX_PACKAGES 8

static unsigned int packages = 1;
module_param(packages, uint, 0444);
static unsigned int milliwatts = 10000;
module_param(milliwatts, uint, 0444);
static unsigned long long range = 262143328850ULL;
module_param(range, ullong, 0444);

struct domain {
	struct powercap_zone zone;
	u64 milliwatts;
};

static struct powercap_control_type *control;
static struct domain package_domains[MAX_PACKAGES];
static struct domain memory_domains[MAX_PACKAGES];
static ktime_t loaded;

static int get_energy(struct powercap_zone *zone, u64 *microjoules)
{
	struct domain *domain = container_of(zone, struct domain, zone);
	u64 milliseconds = ktime_ms_delta(ktime_get(), loaded);

	div64_u64_rem(milliseconds * domain->milliwatts, range, microjoules);
	return 0;
}

static int get_range(struct powercap_zone *zone, u64 *microjoules)
{
	*microjoules = range;
	return 0;
}

static int release(struct powercap_zone *zone)
{
	return 0;
}

/* The kernel wants at least one limit of each zone; these cannot be changed. */
static int set_number(struct powercap_zone *zone, int id, u64 value)
{
	return -EPERM;
}

static int get_number(struct powercap_zone *zone, int id, u64 *value)
{
	*value = 1000000;
	return 0;
}

static const struct powercap_zone_ops zone_ops = {
	.get_energy_uj = get_energy,
	.get_max_energy_range_uj = get_range,
	.release = release,
};

static const struct powercap_zone_constraint_ops limit_ops = {
	.set_power_limit_uw = set_number,
	.get_power_limit_uw = get_number,
	.set_time_window_us = set_number,
	.get_time_window_us = get_number,
};

static int __init fakerapl_begin(void)
{
	unsigned int i;

	if (!packages || packages > MAX_PACKAGES || !range)
		return -EINVAL;
	loaded = ktime_get();
	control = powercap_register_control_type(NULL, "intel-rapl", NULL);
	if (IS_ERR(control))
		return PTR_ERR(control);
	for (i = 0; i < packages; i++) {
		struct powercap_zone *zone;
		char name[16];

		snprintf(name, sizeof(name), "package-%u", i);
		package_domains[i].milliwatts = (u64)milliwatts * (i + 1);
		zone = powercap_register_zone(&package_domains[i].zone, control, name, NULL, &zone_ops, 1,
					      &limit_ops);
		if (IS_ERR(zone))
			return PTR_ERR(zone);
		memory_domains[i].milliwatts = package_domains[i].milliwatts / 4;
		zone = powercap_register_zone(&memory_domains[i].zone, control, "dram", zone, &zone_ops, 1,
					      &limit_ops);
		if (IS_ERR(zone))
			return PTR_ERR(zone);
	}
	return 0;
}

/* There is no way out: a guest lives as long as its test. */
module_init(fakerapl_begin);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Energy counters for machines without any");

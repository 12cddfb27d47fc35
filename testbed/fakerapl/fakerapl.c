// SPDX-License-Identifier: GPL-2.0
/*
 * fakerapl: energy counters for machines without any.
 *
 * Registers the powercap control type "intel-rapl" with a zone for each package and one for the memory
 * of each, as the kernel's RAPL driver does. A package uses `milliwatts`, its memory a quarter of that,
 * from the moment of loading; package N uses N + 1 times as much. A counter continues at 0 after
 * `range` microjoules. The PMU "power" counts the same as perf events, in microjoules and for ever.
 *
 *   packages=N   at loading
 *   milliwatts=N at loading
 *   range=N      at loading
 */
#include <linux/cpumask.h>
#include <linux/device.h>
#include <linux/kernel.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/perf_event.h>
#include <linux/powercap.h>
#include <linux/topology.h>

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

/* Microjoules since loading. */
static u64 used(const struct domain *domain)
{
	return ktime_ms_delta(ktime_get(), loaded) * domain->milliwatts;
}

static int get_energy(struct powercap_zone *zone, u64 *microjoules)
{
	div64_u64_rem(used(container_of(zone, struct domain, zone)), range, microjoules);
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

/* What an event counts; NULL if nothing. The codes are those of the kernel's own PMU. */
static struct domain *domain_of(struct perf_event *event)
{
	unsigned int package = topology_physical_package_id(event->cpu);

	if (package >= packages)
		return NULL;
	switch (event->attr.config) {
	case 2:
		return &package_domains[package];
	case 3:
		return &memory_domains[package];
	}
	return NULL;
}

static int power_event_init(struct perf_event *event)
{
	if (event->attr.type != event->pmu->type)
		return -ENOENT;
	if (is_sampling_event(event) || event->cpu < 0 || !domain_of(event))
		return -EINVAL;
	return 0;
}

static void power_read(struct perf_event *event)
{
	u64 now = used(domain_of(event));

	local64_add(now - local64_xchg(&event->hw.prev_count, now), &event->count);
}

static void power_start(struct perf_event *event, int flags)
{
	local64_set(&event->hw.prev_count, used(domain_of(event)));
	event->hw.state = 0;
}

static void power_stop(struct perf_event *event, int flags)
{
	if (event->hw.state & PERF_HES_STOPPED)
		return;
	power_read(event);
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
}

static int power_add(struct perf_event *event, int flags)
{
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
	if (flags & PERF_EF_START)
		power_start(event, flags);
	return 0;
}

static void power_del(struct perf_event *event, int flags)
{
	power_stop(event, flags);
}

static ssize_t show_text(struct device *dev, struct device_attribute *attr, char *page)
{
	return sysfs_emit(page, "%s\n",
			  (const char *)container_of(attr, struct dev_ext_attribute, attr)->var);
}

/* The first CPU of each package. */
static ssize_t show_cpumask(struct device *dev, struct device_attribute *attr, char *page)
{
	unsigned long seen = 0;
	ssize_t length = 0;
	unsigned int cpu;

	for_each_online_cpu(cpu) {
		unsigned int package = topology_physical_package_id(cpu);

		if (package < MAX_PACKAGES && !(seen & BIT(package)))
			length += sysfs_emit_at(page, length, "%s%u", seen ? "," : "", cpu);
		seen |= BIT(package);
	}
	return length + sysfs_emit_at(page, length, "\n");
}

#define TEXT(variable, file, text)                                                   \
	static struct dev_ext_attribute variable = {                                 \
		.attr = { .attr = { .name = file, .mode = 0444 }, .show = show_text }, \
		.var = text,                                                         \
	}

TEXT(format_event, "event", "config:0-7");
TEXT(energy_pkg, "energy-pkg", "event=0x02");
TEXT(energy_pkg_scale, "energy-pkg.scale", "1.0e-6");
TEXT(energy_pkg_unit, "energy-pkg.unit", "Joules");
TEXT(energy_ram, "energy-ram", "event=0x03");
TEXT(energy_ram_scale, "energy-ram.scale", "1.0e-6");
TEXT(energy_ram_unit, "energy-ram.unit", "Joules");
static struct device_attribute cpumask_attr = {
	.attr = { .name = "cpumask", .mode = 0444 },
	.show = show_cpumask,
};

static struct attribute *format_attrs[] = { &format_event.attr.attr, NULL };
static struct attribute *event_attrs[] = {
	&energy_pkg.attr.attr, &energy_pkg_scale.attr.attr, &energy_pkg_unit.attr.attr,
	&energy_ram.attr.attr, &energy_ram_scale.attr.attr, &energy_ram_unit.attr.attr,
	NULL,
};
static struct attribute *plain_attrs[] = { &cpumask_attr.attr, NULL };
static const struct attribute_group format_group = { .name = "format", .attrs = format_attrs };
static const struct attribute_group event_group = { .name = "events", .attrs = event_attrs };
static const struct attribute_group plain_group = { .attrs = plain_attrs };
static const struct attribute_group *groups[] = {
	&format_group, &event_group, &plain_group, NULL,
};

static struct pmu power = {
	.module = THIS_MODULE,
	.attr_groups = groups,
	.task_ctx_nr = perf_invalid_context,
	.capabilities = PERF_PMU_CAP_NO_EXCLUDE,
	.event_init = power_event_init,
	.add = power_add,
	.del = power_del,
	.start = power_start,
	.stop = power_stop,
	.read = power_read,
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
	return perf_pmu_register(&power, "power", -1);
}

/* There is no way out: a guest lives as long as its test. */
module_init(fakerapl_begin);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Energy counters for machines without any");

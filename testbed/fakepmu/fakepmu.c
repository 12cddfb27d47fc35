// SPDX-License-Identifier: GPL-2.0
/*
 * fakepmu: a core PMU for machines without one.
 *
 * Registers a PMU "cpu" that takes PERF_TYPE_HARDWARE and PERF_TYPE_RAW events of single tasks and of
 * whole CPUs, counting only. An event advances with the time that its task runs, at a rate chosen by
 * rules; one of a whole CPU with that of each task that runs there, and not while it is idle.
 * Events are coded as on x86, event + (umask << 8); a code that nobody named opens and counts
 * nothing, as on hardware.
 *
 * At loading:
 *   events=NAME:CODE[,NAME:CODE...]   events of its own (code in C notation), also shown in sysfs
 * At any time, in /sys/module/fakepmu/parameters:
 *   rules   writing "SELECTOR NAME=RATE..." adds or replaces one rule; SELECTOR is tid:NUMBER,
 *           name:TASKNAME or *, the first of these that fits a task counts; RATE is in events a
 *           second of running time. Writing "clear" forgets all. Reading lists them.
 *   lie     when set, every event advances by 395 a second whatever the task does, as counters
 *           in some virtual machines do
 *   counters   how many events fit on a CPU at once; the kernel lets more take turns; 0 for any number
 */
#include <linux/device.h>
#include <linux/kernel.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/perf_event.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/tracepoint.h>

#define MAX_EVENTS 32
#define MAX_RULES 256
#define NAME_LENGTH 48
#define CODE_MASK 0xffff
#define LIE_RATE 395
/* The number of an event that exists but that no rule can name. */
#define SILENT MAX_EVENTS

struct named_event {
	char name[NAME_LENGTH];
	u64 code;
	char text[32];
	struct perf_pmu_events_attr attr;
};

enum selector { BY_TID, BY_NAME, ANY };

struct rule {
	enum selector by;
	pid_t tid;
	char comm[TASK_COMM_LEN];
	u64 rate[MAX_EVENTS];
};

/* In the order of enum perf_hw_id, with Intel's architectural codes. */
static const struct {
	const char *name;
	u64 code;
} generic_events[] = {
	{ "cpu-cycles", 0x003c },
	{ "instructions", 0x00c0 },
	{ "cache-references", 0x4f2e },
	{ "cache-misses", 0x412e },
	{ "branch-instructions", 0x00c4 },
	{ "branch-misses", 0x00c5 },
};

static struct named_event named[MAX_EVENTS];
static unsigned int named_count;
static struct rule *rules;
static unsigned int rule_count;
/* Read by the scheduler on every switch: interrupts off, never sleeping. */
static DEFINE_RAW_SPINLOCK(rules_lock);

static char *events = "";
module_param(events, charp, 0444);
MODULE_PARM_DESC(events, "further events, NAME:CODE,...");
static unsigned int counters;
module_param(counters, uint, 0644);
MODULE_PARM_DESC(counters, "events on a CPU at once, 0 for any number");
static DEFINE_PER_CPU(unsigned int, in_use);
static bool lie;
module_param(lie, bool, 0644);
MODULE_PARM_DESC(lie, "count 395 a second, whatever happens");

static int find_named(const char *name)
{
	unsigned int i;

	for (i = 0; i < named_count; i++)
		if (!strcmp(named[i].name, name))
			return i;
	return -ENOENT;
}

static int add_named(const char *name, u64 code)
{
	if (named_count == MAX_EVENTS)
		return -ENOSPC;
	if (!*name || find_named(name) >= 0 || code & ~CODE_MASK)
		return -EINVAL;
	if (strscpy(named[named_count].name, name, NAME_LENGTH) < 0)
		return -E2BIG;
	named[named_count++].code = code;
	return 0;
}

/* One rule from text; the text is cut up. */
static int parse_rule(char *text, struct rule *rule)
{
	char *selector, *token;

	memset(rule, 0, sizeof(*rule));
	do
		selector = strsep(&text, " \t\n");
	while (selector && !*selector);
	if (!selector)
		return -EINVAL;
	if (!strncmp(selector, "tid:", 4)) {
		rule->by = BY_TID;
		if (kstrtoint(selector + 4, 10, &rule->tid))
			return -EINVAL;
	} else if (!strncmp(selector, "name:", 5)) {
		rule->by = BY_NAME;
		if (strscpy(rule->comm, selector + 5, sizeof(rule->comm)) < 0)
			return -EINVAL;
	} else if (!strcmp(selector, "*")) {
		rule->by = ANY;
	} else {
		return -EINVAL;
	}
	while ((token = strsep(&text, " \t\n"))) {
		char *value = token;
		char *name = strsep(&value, "=");
		int event;

		if (!*name)
			continue;
		event = find_named(name);
		if (event < 0)
			return event;
		if (!value || kstrtou64(value, 10, &rule->rate[event]))
			return -EINVAL;
	}
	return 0;
}

static int rules_set(const char *text, const struct kernel_param *param)
{
	struct rule *rule;
	unsigned long flags;
	unsigned int i;
	char *copy;
	int error;

	/* Rules name events, which are only known once the module stands. */
	if (!rules)
		return -EBUSY;
	if (sysfs_streq(text, "clear")) {
		raw_spin_lock_irqsave(&rules_lock, flags);
		rule_count = 0;
		raw_spin_unlock_irqrestore(&rules_lock, flags);
		return 0;
	}
	copy = kstrdup(text, GFP_KERNEL);
	rule = kmalloc(sizeof(*rule), GFP_KERNEL);
	error = copy && rule ? parse_rule(copy, rule) : -ENOMEM;
	if (!error) {
		raw_spin_lock_irqsave(&rules_lock, flags);
		for (i = 0; i < rule_count; i++)
			if (rules[i].by == rule->by && rules[i].tid == rule->tid &&
			    !strcmp(rules[i].comm, rule->comm))
				break;
		if (i < MAX_RULES) {
			rules[i] = *rule;
			if (i == rule_count)
				rule_count++;
		} else {
			error = -ENOSPC;
		}
		raw_spin_unlock_irqrestore(&rules_lock, flags);
	}
	kfree(rule);
	kfree(copy);
	return error;
}

static int rules_get(char *buffer, const struct kernel_param *param)
{
	unsigned long flags;
	unsigned int i, event;
	int n = 0;

	raw_spin_lock_irqsave(&rules_lock, flags);
	for (i = 0; i < rule_count; i++) {
		const struct rule *rule = &rules[i];

		if (rule->by == BY_TID)
			n += scnprintf(buffer + n, PAGE_SIZE - n, "tid:%d", rule->tid);
		else if (rule->by == BY_NAME)
			n += scnprintf(buffer + n, PAGE_SIZE - n, "name:%s", rule->comm);
		else
			n += scnprintf(buffer + n, PAGE_SIZE - n, "*");
		for (event = 0; event < named_count; event++)
			if (rule->rate[event])
				n += scnprintf(buffer + n, PAGE_SIZE - n, " %s=%llu",
					       named[event].name, rule->rate[event]);
		n += scnprintf(buffer + n, PAGE_SIZE - n, "\n");
	}
	raw_spin_unlock_irqrestore(&rules_lock, flags);
	return n;
}

static const struct kernel_param_ops rules_ops = { .set = rules_set, .get = rules_get };
module_param_cb(rules, &rules_ops, NULL, 0644);
MODULE_PARM_DESC(rules, "how fast events of which task advance");

/* The rule for a task, if there is one; with the lock held. */
static const struct rule *rule_of(struct task_struct *task)
{
	const struct rule *best = NULL;
	unsigned int i;

	for (i = 0; i < rule_count; i++) {
		const struct rule *rule = &rules[i];
		bool fits = rule->by == ANY || (rule->by == BY_TID && rule->tid == task->pid) ||
			    (rule->by == BY_NAME && !strncmp(rule->comm, task->comm, TASK_COMM_LEN));

		if (fits && (!best || rule->by < best->by))
			best = rule;
	}
	return best;
}

/* Events a second of a task's running time. */
static u64 rate_of(struct task_struct *task, unsigned int event)
{
	const struct rule *best;
	unsigned long flags;
	u64 rate = 0;

	if (lie)
		return LIE_RATE;
	if (event == SILENT)
		return 0;
	raw_spin_lock_irqsave(&rules_lock, flags);
	best = rule_of(task);
	if (best)
		rate = best->rate[event];
	raw_spin_unlock_irqrestore(&rules_lock, flags);
	return rate;
}

/*
 * The clock that the kernel measures an event's running time by, brought up to date before every
 * call into a PMU. Reading a clock of our own a little later would add up to a third with tasks that
 * switch often in a slow emulated machine.
 */
static u64 clock_of(struct perf_event *event)
{
	return event->ctx->time;
}

/* What happened on a CPU since the module was loaded: whole events, and billionths of the next one. */
struct deeds {
	u64 since;
	u64 whole[MAX_EVENTS];
	u64 rest[MAX_EVENTS];
};
static DEFINE_PER_CPU(struct deeds, deeds);
/* Events of whole CPUs that were ever asked for: without any, switches cost nothing. */
static atomic_t whole_cpus = ATOMIC_INIT(0);

/* Charges this CPU with what the task on it did since the last time, up to now; with interrupts off. */
static void charge(struct task_struct *task, u64 now)
{
	struct deeds *here = this_cpu_ptr(&deeds);
	u64 ran = here->since && now > here->since ? now - here->since : 0;
	const struct rule *rule;
	unsigned long flags;
	unsigned int i;

	here->since = max(here->since, now);
	if (is_idle_task(task))
		return;
	raw_spin_lock_irqsave(&rules_lock, flags);
	rule = rule_of(task);
	for (i = 0; i < named_count; i++) {
		u64 rate = lie ? LIE_RATE : rule ? rule->rate[i] : 0;
		u64 rest = ran % NSEC_PER_SEC * rate + here->rest[i];

		here->whole[i] += ran / NSEC_PER_SEC * rate + rest / NSEC_PER_SEC;
		here->rest[i] = rest % NSEC_PER_SEC;
	}
	raw_spin_unlock_irqrestore(&rules_lock, flags);
}

static void on_switch(void *data, bool preempt, struct task_struct *prev, struct task_struct *next,
		      unsigned int state)
{
	if (atomic_read(&whole_cpus))
		charge(prev, local_clock());
}

static bool is_whole_cpu(struct perf_event *event)
{
	return !(event->attach_state & PERF_ATTACH_TASK);
}

/*
 * On this CPU, of the event, up to when the kernel last read its clock for events: all of a group are
 * of one moment, however long the emulated machine has to wait between two of them.
 */
static u64 happened_here(struct perf_event *event)
{
	charge(current, event->ctx->timestamp);
	return event->hw.idx == SILENT ? 0 : this_cpu_ptr(&deeds)->whole[event->hw.idx];
}

/*
 * Adds what the task has earned since the last time. What does not make a whole event yet stays in
 * period_left, which counting events do not use: short runs at a low rate must add up.
 */
static void fakepmu_update(struct perf_event *event)
{
	struct task_struct *task = event->hw.target ? event->hw.target : current;
	u64 now, ran, rate, whole, rest;

	if (is_whole_cpu(event)) {
		now = happened_here(event);
		local64_add(now - local64_xchg(&event->hw.prev_count, now), &event->count);
		return;
	}
	now = clock_of(event);
	ran = now - local64_xchg(&event->hw.prev_count, now);
	rate = rate_of(task, event->hw.idx);
	whole = ran / NSEC_PER_SEC * rate;
	rest = ran % NSEC_PER_SEC * rate + local64_read(&event->hw.period_left);
	local64_set(&event->hw.period_left, rest % NSEC_PER_SEC);
	local64_add(whole + rest / NSEC_PER_SEC, &event->count);
}

static void fakepmu_start(struct perf_event *event, int flags)
{
	u64 now = is_whole_cpu(event) ? happened_here(event) : clock_of(event);

	local64_set(&event->hw.prev_count, now);
	event->hw.state = 0;
}

static void fakepmu_stop(struct perf_event *event, int flags)
{
	if (event->hw.state & PERF_HES_STOPPED)
		return;
	fakepmu_update(event);
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
}

static int fakepmu_add(struct perf_event *event, int flags)
{
	if (counters && this_cpu_read(in_use) >= counters)
		return -EAGAIN;
	this_cpu_inc(in_use);
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
	if (flags & PERF_EF_START)
		fakepmu_start(event, flags);
	perf_event_update_userpage(event);
	return 0;
}

static void fakepmu_del(struct perf_event *event, int flags)
{
	fakepmu_stop(event, flags);
	this_cpu_dec(in_use);
}

static void fakepmu_read(struct perf_event *event)
{
	if (!(event->hw.state & PERF_HES_STOPPED))
		fakepmu_update(event);
}

static int fakepmu_event_init(struct perf_event *event)
{
	u64 code;
	unsigned int i;

	if (event->attr.type == PERF_TYPE_HARDWARE) {
		/* The upper half may choose among PMUs. */
		u64 id = event->attr.config & PERF_HW_EVENT_MASK;

		if (id >= ARRAY_SIZE(generic_events))
			return -ENOENT;
		code = generic_events[id].code;
	} else if (event->attr.type == PERF_TYPE_RAW) {
		code = event->attr.config & CODE_MASK;
	} else {
		return -ENOENT;
	}
	if (is_sampling_event(event))
		return -EOPNOTSUPP;
	if (is_whole_cpu(event))
		atomic_inc(&whole_cpus);
	event->hw.idx = SILENT;
	for (i = 0; i < named_count; i++)
		if (named[i].code == code)
			event->hw.idx = i;
	local64_set(&event->hw.period_left, 0);
	return 0;
}

PMU_FORMAT_ATTR(event, "config:0-7");
PMU_FORMAT_ATTR(umask, "config:8-15");
PMU_FORMAT_ATTR(edge, "config:18");
PMU_FORMAT_ATTR(inv, "config:23");
PMU_FORMAT_ATTR(cmask, "config:24-31");

static struct attribute *format_attrs[] = {
	&format_attr_event.attr, &format_attr_umask.attr, &format_attr_edge.attr,
	&format_attr_inv.attr,	 &format_attr_cmask.attr, NULL,
};
static const struct attribute_group format_group = { .name = "format", .attrs = format_attrs };

static struct attribute *event_attrs[MAX_EVENTS + 1];
static const struct attribute_group event_group = { .name = "events", .attrs = event_attrs };
static const struct attribute_group *groups[] = { &format_group, &event_group, NULL };

static struct pmu fakepmu = {
	.module = THIS_MODULE,
	.attr_groups = groups,
	.task_ctx_nr = perf_hw_context,
	.capabilities = PERF_PMU_CAP_NO_INTERRUPT,
	.event_init = fakepmu_event_init,
	.add = fakepmu_add,
	.del = fakepmu_del,
	.start = fakepmu_start,
	.stop = fakepmu_stop,
	.read = fakepmu_read,
};

static ssize_t show_event(struct device *dev, struct device_attribute *attr, char *page)
{
	return sysfs_emit(page, "%s\n", container_of(attr, struct perf_pmu_events_attr, attr)->event_str);
}

static void publish(struct named_event *event)
{
	snprintf(event->text, sizeof(event->text), "event=0x%02llx,umask=0x%02llx", event->code & 0xff,
		 event->code >> 8);
	sysfs_attr_init(&event->attr.attr.attr);
	event->attr.attr.attr.name = event->name;
	event->attr.attr.attr.mode = 0444;
	event->attr.attr.show = show_event;
	event->attr.event_str = event->text;
}

static int __init parse_events(void)
{
	char *copy = kstrdup(events, GFP_KERNEL), *rest = copy, *token;
	int error = copy ? 0 : -ENOMEM;

	while (!error && (token = strsep(&rest, ","))) {
		char *code = token;
		char *name = strsep(&code, ":");
		u64 value;

		if (!*name)
			continue;
		error = !code || kstrtou64(code, 0, &value) ? -EINVAL : add_named(name, value);
		if (error)
			pr_err("fakepmu: event \"%s\" is not NAME:CODE, not new or too much\n", name);
	}
	kfree(copy);
	return error;
}

static void find_switch(struct tracepoint *tracepoint, void *found)
{
	if (!strcmp(tracepoint->name, "sched_switch"))
		*(struct tracepoint **)found = tracepoint;
}

static int __init fakepmu_begin(void)
{
	struct tracepoint *sched_switch = NULL;
	unsigned int i;
	int error = 0;

	for (i = 0; !error && i < ARRAY_SIZE(generic_events); i++)
		error = add_named(generic_events[i].name, generic_events[i].code);
	if (!error)
		error = parse_events();
	if (error)
		return error;
	for (i = 0; i < named_count; i++) {
		publish(&named[i]);
		event_attrs[i] = &named[i].attr.attr.attr;
	}
	rules = kcalloc(MAX_RULES, sizeof(*rules), GFP_KERNEL);
	if (!rules)
		return -ENOMEM;
	for_each_kernel_tracepoint(find_switch, &sched_switch);
	error = sched_switch ? tracepoint_probe_register(sched_switch, on_switch, NULL) : -ENOENT;
	if (error) {
		kfree(rules);
		return error;
	}
	error = perf_pmu_register(&fakepmu, "cpu", PERF_TYPE_RAW);
	if (error)
		tracepoint_probe_unregister(sched_switch, on_switch, NULL);
	if (error)
		kfree(rules);
	return error;
}

/*
 * There is no way out: a task that was once observed keeps pointing at its PMU, and the kernel would
 * follow that pointer into the unloaded module at the next context switch.
 */
module_init(fakepmu_begin);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("A core PMU for machines without one");

// Command bench measures a node agent on a real containerd: fullnode, or any
// program that takes the kubelet's flags and configuration.
//
//	go run ./bench [-quick] [-o FILE]                    fullnode, in test/
//	go run ./bench -agent A -agent B -cgroup-root /bench two agents, one after the other
//
// Absolute times of such work say more about the machine than about the agent.
// So whatever the agent has done by the runtime is also done by direct CRI calls,
// in turns in the same run, and the two are compared. The direct calls repeat the
// agent's own requests, as containerd remembers them, and go to a second
// containerd of the same kind, so that the agent neither sees nor serves them.
//
// It needs Linux and root. Everything it makes is below .dev/bench, and it says
// what is left of it, which is nothing. Exit status 1: a promise that is not about
// time is broken, such as a container that an agent's restart did not keep.
package main

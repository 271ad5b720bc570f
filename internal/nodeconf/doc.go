// Package nodeconf reads the node's configuration, /etc/ibex/config.toml: what
// holds for every container of the node, whoever creates it.
//
// What may not be added: settings of one container. Those come from its spec or
// its runtime options.
package nodeconf
